"""Replicas added and removed while a cluster serves."""

import threading
import time
from collections.abc import Callable, Mapping

from deploy import figures
from deploy.budget import Occupant, over_budget
from deploy.cluster.blueprint import Blueprint
from deploy.cluster.drain import LOOK_EVERY_S, Drain
from deploy.cluster.member import Member, Replica
from deploy.cluster.roster import Roster
from deploy.errors import PlanError, ServerFailed

FORGET_S = 0.3
"""Proxies let go of a replica that has left the placement, before it is stopped."""

DRAIN_TIMEOUT_S = 60.0


class Scaling:
    """Changes who is in `roster`."""

    def __init__(
        self,
        blueprint: Blueprint,
        roster: Roster,
        starts: threading.Semaphore,
        read_metrics: Callable[[str], str] = figures.read_metrics,
    ) -> None:
        self._blueprint = blueprint
        self._plan = blueprint.plan
        self._roster = roster
        self._starts = starts
        self._read_metrics = read_metrics
        self._changing = threading.RLock()

    def recruit(self, replica: Replica, environment: Mapping[str, str]) -> Member:
        """A member that is not started yet, and that nobody knows of."""
        taken = [member.server for member in self._roster.members]
        progress = self._roster.progress_of(replica.name)
        server = self._blueprint.server(replica, environment, taken, progress)
        return Member(replica, server, self._starts, self._roster.tell)

    def add(self, what: str, environment: Mapping[str, str], device: str | None) -> str:
        """See Cluster.add_replica."""
        with self._changing:
            self._refuse_on_several_machines()
            replica = self._blueprint.another(what, device)
            self._refuse_over_budget(replica)
            member = self.recruit(replica, environment)
            try:
                member.start()
                self._roster.add(member)
            except BaseException:
                member.close()
                raise
        member.watch()
        self._roster.tell(member, "added", "gets turns from now on")
        return replica.name

    def remove(self, name: str, timeout_s: float) -> None:
        """See Cluster.remove_replica."""
        with self._changing:
            self._refuse_on_several_machines()
            member = self._removable(name)
            member.draining = True
            self._roster.tell(member, "draining", "gets no new turns")
            try:
                self._drain(member, timeout_s)
            except BaseException:
                member.draining = False
                self._roster.tell(member, "failed", "is not drained, and gets turns again")
                raise
            self._roster.remove(member)
        time.sleep(FORGET_S)
        member.close()
        self._roster.tell(member, "removed", "is stopped")

    def scale(self, what: str, count: int) -> None:
        """See Cluster.scale."""
        if count < 1:
            raise PlanError(f"at least one {what} must stay, not {count}")
        self._blueprint.server_of(what)
        with self._changing:
            while len(have := self._serving(what)) != count:
                if len(have) < count:
                    self.add(what, {}, None)
                else:
                    self.remove(have[-1], DRAIN_TIMEOUT_S)

    def _serving(self, what: str) -> list[str]:
        """Servers alike, or those with a stage: first the ones that are needed for most stages,
        and then for longest."""
        replicas = [member.replica for member in self._roster.members if not member.draining]
        if what in self._plan.servers:
            found = [one for one in replicas if one.server == what and one.is_whole]
        else:
            found = [one for one in replicas if what in one.view.stages]
        return [one.name for one in sorted(found, key=lambda one: -len(one.view.stages))]

    def _refuse_on_several_machines(self) -> None:
        if self._roster.elsewhere:
            raise PlanError(
                "servers of this plan run on other machines, which would not learn of a change; "
                "write `replicas` into the plan"
            )

    def _refuse_over_budget(self, replica: Replica) -> None:
        replicas = [*(member.replica for member in self._roster.members), replica]
        occupants = [Occupant(one.name, one.device, one.view) for one in replicas]
        reasons = list(over_budget(self._plan, self._blueprint.models, occupants))
        if reasons:
            raise PlanError("\n".join(reasons))

    def _removable(self, name: str) -> Member:
        members = {member.replica.name: member for member in self._roster.members}
        if name not in members:
            raise PlanError(f"no replica {name!r}; replicas: {', '.join(members)}")
        chosen = members.pop(name)
        others = {
            stage
            for member in members.values()
            if not member.draining
            for stage in member.replica.view.stages
        }
        needed = [stage for stage in chosen.replica.view.stages if stage not in others]
        if needed or chosen.replica.server == self._plan.front:
            only = ", ".join(needed) or "the front"
            raise PlanError(f"{name} must stay: nobody else serves {only}")
        return chosen

    def _drain(self, member: Member, timeout_s: float) -> None:
        """Wait until nothing is open at it. ServerFailed when that takes too long."""
        drain = Drain(time.monotonic())
        deadline = time.monotonic() + timeout_s
        while member.server.alive and not self._has_drained(member, drain):
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"{member.replica.name} still has {drain.open_requests} open requests after "
                    f"{timeout_s:.0f} s"
                )
            time.sleep(LOOK_EVERY_S)

    def _has_drained(self, member: Member, drain: Drain) -> bool:
        """Nothing is open at it, and no turn will come back to it with its next piece."""
        try:
            told = figures.open_requests(self._read_metrics(member.server.metrics_address))
            expected = sum(self._turns_at(member, user) for user in self._users())
        except ServerFailed:
            return False  # whoever watches it decides whether it is lost
        return drain.is_over(time.monotonic(), sum(told.values()) + expected)

    def _users(self) -> list[Member]:
        """Those who have proxies."""
        return [member for member in self._roster.members if member.replica.view.proxies]

    def _turns_at(self, member: Member, user: Member) -> int:
        told = figures.remote_turns(self._read_metrics(user.server.metrics_address))
        return told.get(member.replica.name, 0)
