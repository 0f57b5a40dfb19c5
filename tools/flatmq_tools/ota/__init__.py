"""Updates of boards over MQTT, from the desk: keys, what is sent, sending it, and asking how it
went. The board's side is `flatmq.ota`.
"""
