"""Random histories of a fleet: messages late or lost, gateways that hang, die and return, clocks with different speeds.
No two gateways ever lead a partition at the same time; without further faults, each partition has one leader."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.fleet.messages import NO_EPOCH, Message, TopicTurn, TopicTurnEnd
from tests.unit.coordinator.fleet.fleet_harness import KEYS, TIMES, Gateway, World

NAMES = "abcd"
RATES = (1.0, 0.98, 1.02, 1.0)
PAUSES_MS = st.integers(1, 400) | st.sampled_from([TIMES.lease_ms - 1, TIMES.dead_after_ms, 3 * TIMES.dead_after_ms])


class FleetLives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.late: list[Message] = []
        self.highest_epoch = NO_EPOCH

    @initialize()
    def begin(self) -> None:
        self.start(0)
        self.start(1)

    def find(self, number: int) -> Gateway | None:
        return next((each for each in self.world.gateways if each.instance == NAMES[number]), None)

    def each(self, number: int, action: Callable[[Gateway], None]) -> None:
        gateway = self.find(number)
        if gateway is not None:
            action(gateway)

    @rule(number=st.integers(0, 3))
    def start(self, number: int) -> None:
        if self.find(number) is None:
            self.world.start(NAMES[number], rate=RATES[number])

    @rule(number=st.integers(0, 3))
    def kill(self, number: int) -> None:
        def die(gateway: Gateway) -> None:
            self.late += gateway.outbox
            self.world.kill(gateway)

        self.each(number, die)

    @rule(number=st.integers(0, 3))
    def leave(self, number: int) -> None:
        self.each(number, lambda gateway: gateway.membership.leave(gateway.clock(self.world.now_ms)))

    @rule(number=st.integers(0, 3))
    def go(self, number: int) -> None:
        def go(gateway: Gateway) -> None:
            if gateway.membership.handed_over:
                self.late += [*gateway.outbox, gateway.membership.goodbye()]
                self.world.kill(gateway)

        self.each(number, go)

    @rule(duration_ms=PAUSES_MS)
    def pass_time(self, duration_ms: int) -> None:
        self.world.now_ms += duration_ms

    @rule(duration_ms=PAUSES_MS, resting=st.sets(st.integers(0, 3)))
    def work_but_for_some(self, duration_ms: int, resting: set[int]) -> None:
        for gateway in self.world.gateways:
            gateway.paused = NAMES.index(gateway.instance) in resting
        self.world.run(duration_ms)

    @rule(number=st.integers(0, 3))
    def tick(self, number: int) -> None:
        self.each(number, lambda gateway: gateway.tick(self.world.now_ms))

    @rule(number=st.integers(0, 3), most=st.integers(1, 3))
    def deliver(self, number: int, most: int) -> None:
        self.each(number, lambda gateway: gateway.deliver(most))

    @rule(number=st.integers(0, 3))
    def lose(self, number: int) -> None:
        self.each(number, lambda gateway: gateway.outbox.clear())

    @precondition(lambda self: self.late)
    @rule()
    def deliver_of_the_dead(self) -> None:
        self.world.log.append(self.late.pop(0))

    @rule(number=st.integers(0, 3), most=st.integers(1, 4))
    def read(self, number: int, most: int) -> None:
        self.each(number, lambda gateway: gateway.read(self.world.now_ms, most))

    @rule(number=st.integers(0, 3))
    def drain(self, number: int) -> None:
        self.each(number, lambda gateway: gateway.drain(self.world.now_ms))

    @rule(number=st.integers(0, 3), topic=st.sampled_from("tu"), request=st.integers(0, 3))
    def ask_for_a_turn(self, number: int, topic: str, request: int) -> None:
        def ask(gateway: Gateway) -> None:
            own = gateway.membership.member.incarnation
            gateway.outbox.append(TopicTurn(topic=topic, request_id=f"{own}-{request}", incarnation=own))

        self.each(number, ask)

    @rule(number=st.integers(0, 3), topic=st.sampled_from("tu"), request=st.integers(0, 3))
    def end_a_turn(self, number: int, topic: str, request: int) -> None:
        def end(gateway: Gateway) -> None:
            request_id = f"{gateway.membership.member.incarnation}-{request}"
            gateway.outbox.append(TopicTurnEnd(topic=topic, request_id=request_id))

        self.each(number, end)

    @invariant()
    def turns_are_those_of_members(self) -> None:
        for gateway in self.world.gateways:
            roster = gateway.membership.roster
            members = {state.member.incarnation for state in roster.members.values()}
            turns = [turn for of_topic in roster.turns.values() for turn in of_topic]
            assert {turn.incarnation for turn in turns} <= members
            assert len({turn.request_id for turn in turns}) == len(turns)

    @invariant()
    def one_leader_at_most(self) -> None:
        for key, leaders in self.world.leaders().items():
            assert len(leaders) <= 1, f"{key}: {[gateway.instance for gateway in leaders]}"

    @invariant()
    def equal_logs_are_equal_fleets(self) -> None:
        known = {gateway.next_index: gateway for gateway in self.world.gateways}
        for gateway in self.world.gateways:
            other = known[gateway.next_index].membership.roster
            assert gateway.membership.roster.snapshot() == other.snapshot()

    @rule()
    def peace(self) -> None:
        for gateway in self.world.gateways:
            gateway.paused = False
        self.world.run(2 * TIMES.dead_after_ms + 1_000)
        if self.world.gateways:
            self.world.check_one_leader_each()
            roster = self.world.gateways[0].membership.roster
            assert len(roster.members) == len(self.world.gateways)
            assert roster.epoch >= self.highest_epoch
            self.highest_epoch = roster.epoch
            assert {roster.leader(key) for key in KEYS} <= {member.node_id for member in roster.eligible}


TestFleetLives = FleetLives.TestCase
TestFleetLives.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
