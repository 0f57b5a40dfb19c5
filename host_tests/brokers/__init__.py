"""A scripted broker for both protocol versions: on loopback, and on a link without a network."""
