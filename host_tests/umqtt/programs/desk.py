"""What a program on the desk has instead of a board's settings: where the broker is, and a word
with the test that started it."""

import sys

HOST = sys.argv[1]
PORT = int(sys.argv[2])

if hasattr(sys.stdout, "reconfigure"):  # CPython holds back what goes to a pipe
    sys.stdout.reconfigure(line_buffering=True)


def ask(*words):
    """Have the test do something, and wait until it is done."""
    print("@ask", *words)
    return sys.stdin.readline().strip()


def end():
    """The program has come to its end."""
    print("@end")
