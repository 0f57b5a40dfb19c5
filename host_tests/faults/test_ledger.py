"""The ledger sees what it is there to see."""

from faults.ledger import Message, Way, payload, read


def way(promised: str, came: str, qos: int, **options) -> Way:
    """Messages named by their numbers."""

    def messages(numbers: str) -> list[Message]:
        return [Message("t", int(n), 16, qos) for n in numbers]

    return Way("up", messages(promised), list(messages(came)), **options)


def test_nothing_is_wrong_with_what_came_as_promised():
    for qos in range(3):
        assert way("123", "123", qos).problems() == []


def test_loss_counts_at_qos_1_and_2_and_at_qos_0_where_all_should_be_intact():
    assert way("12", "1", 0).problems() == []
    assert len(way("12", "1", 0, intact=True).problems()) == 1
    assert len(way("12", "1", 1).problems()) == 1
    assert len(way("12", "1", 2).problems()) == 1


def test_only_qos_1_may_come_twice_unless_the_session_was_forgotten():
    assert len(way("12", "112", 0).problems()) == 1
    assert way("12", "112", 1).problems() == []
    assert len(way("12", "112", 2).problems()) == 1
    assert way("12", "112", 2, again=True).problems() == []


def test_order_is_that_of_first_deliveries():
    assert way("123", "12123", 1).problems() == []
    assert len(way("123", "132", 1).problems()) == 1


def test_what_was_never_sent_and_what_came_changed_is_wrong():
    assert len(way("1", "12", 0).problems()) == 1
    assert len(Way("up", [], [None]).problems()) == 1


def test_a_payload_is_read_only_as_it_was_sent():
    assert read(b"t", payload(7, 100), 1) == Message("t", 7, 100, 1)
    assert read(b"t", payload(7, 100)[:-1] + b"x", 1) is None
    assert read(b"t", b"hello", 1) is None
