"""The boards' sketches, with fakes of MicroPython's modules."""
