"""The fault bench: does the client keep its promises when the network and the broker do not?"""
