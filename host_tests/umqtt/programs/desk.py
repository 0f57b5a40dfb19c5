"""The host's replacement for a board's settings.

It has the broker's address, and a line to the test that started the program.
"""

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


def cases(names):
    """Call the functions among `names` that do not begin with _, and print what they return."""
    for name in sorted(names):
        if name[0] != "_" and type(names[name]) is type(cases):
            try:
                result = names[name]()
            except Exception as e:
                result = "raises", type(e).__name__
            print("case", name, result)
    end()
