"""Print "SEEN" and whether what is claimed after a Reserve was made lies below its two buffers."""

from flatmq.stream_tls_reserve import Reserve

reserve = Reserve(8192)
claimed = [(n,) * 200 for n in range(20)]
print("SEEN", int(max(map(id, claimed)) < min(map(id, reserve._kept[:2]))))
