"""Have a client connect over another link than TCP: "tls", "websocket" or "websocket+tls".

The certificate's authority is in the module `authority`, which is made for each run. Runs on
MicroPython and on CPython.
"""

import sys

HOST = "127.0.0.1"


def _flatmq(module, link):
    options = {}
    if "tls" in link:
        from authority import CA

        from flatmq.stream_tls import TLS

        options["tls"] = TLS(ca=CA)
    if "websocket" in link:
        from flatmq.stream_websocket import WebSocket

    def connect(port, name):
        if "websocket" in link:
            client = module.Client(name, link=WebSocket(HOST, port, **options))
        else:
            client = module.Client(name, HOST, port, **options)
        client.connect()
        return client

    module.connect = connect


def _umqtt_simple(module, link):
    """Have this edition wrap its socket with an SSLContext, as later editions do.

    It imports the module `ussl`, which no longer exists.
    """
    import ssl

    from authority import CA

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=CA)

    class Module:
        def wrap_socket(self, sock, server_hostname):
            return context.wrap_socket(sock, server_hostname=server_hostname)

    sys.modules["ussl"] = Module()

    def connect(port, name):
        client = module.MQTTClient(
            name, HOST, port, keepalive=60, ssl=True, ssl_params={"server_hostname": HOST}
        )
        client.set_callback(module.on_message)
        client.connect()
        return client

    module.connect = connect


def use(module, link):
    """Replace the `connect` of a client's module, and set its `times`.

    `times` is the maximum number of bytes of a message, as a multiple of those over TCP. A
    client that makes four writes sends four records.
    """
    module.times = 4
    (_flatmq if module.__name__ == "client_flatmq" else _umqtt_simple)(module, link)
