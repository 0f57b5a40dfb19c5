"""Whatever comes in, the client does what an independent reading of the standard says."""

from hostile import search


def test_client_and_oracle_agree() -> None:
    search.search(search.EXAMPLES)
