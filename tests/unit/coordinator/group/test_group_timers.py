"""Timers against a plain dictionary of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.timers import Timers

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("tick"), st.just(""), st.integers(0, 20)),
    )
)


@given(STEPS)
def test_what_is_due_fires_once_and_nothing_else_does(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    expected: dict[str, int] = {}
    for step, key, time_ms in steps:
        if step == "set":
            timers.set(key, time_ms)
            expected[key] = time_ms
        elif step == "cancel":
            timers.cancel(key)
            expected.pop(key, None)
        else:
            fired = set()
            while (due := timers.pop_due(time_ms)) is not None:
                assert due not in fired
                fired.add(due)
            assert fired == {key for key, deadline_ms in expected.items() if deadline_ms <= time_ms}
            expected = {key: deadline_ms for key, deadline_ms in expected.items() if deadline_ms > time_ms}
        next_ms = timers.next_deadline_ms()
        assert not expected or (next_ms is not None and next_ms <= min(expected.values()))
        assert len(timers) == len(expected)


def test_moving_a_deadline_later_does_not_grow_the_queue() -> None:
    timers: Timers[str] = Timers()
    for deadline_ms in range(10_000):
        timers.set("member", deadline_ms)
    assert len(timers._heap) == 1
