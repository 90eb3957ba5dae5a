"""Every holder has its own bytes, and is refused at its own expense alone."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from python_backends.scheduling.bytes import ByteBudget, OverBudget, Usage


def refused(some: ByteBudget[str], holder: str, nbytes: int) -> OverBudget:
    with pytest.raises(OverBudget) as caught:
        some.take(holder, nbytes)
    return caught.value


def test_a_holder_takes_up_to_its_own_budget() -> None:
    some = ByteBudget(100, {"encode": 60, "think": 40})
    some.take("think", 40)
    over = refused(some, "think", 1)
    assert (over.holder, over.asked, over.free, over.declared) == ("think", 1, 0, 40)
    assert str(over) == "think: 1 bytes are needed, 0 of 40 are free"


def test_another_holder_does_not_feel_it() -> None:
    some = ByteBudget(100, {"encode": 60, "think": 40})
    some.take("think", 30)
    refused(some, "think", 20)
    some.take("encode", 60)


def test_a_refusal_takes_nothing() -> None:
    some = ByteBudget(100, {"think": 40})
    some.take("think", 30)
    refused(some, "think", 11)
    some.take("think", 10)
    assert some.free("think") == 0


def test_a_refusal_says_whether_waiting_helps() -> None:
    some = ByteBudget(100, {"think": 40})
    some.take("think", 30)
    assert not refused(some, "think", 40).never_fits
    assert refused(some, "think", 41).never_fits


def test_bytes_given_back_are_free_and_the_peak_is_kept() -> None:
    some = ByteBudget(100, {"encode": 60})
    some.take("encode", 50)
    some.give_back("encode", 50)
    some.take("encode", 20)
    assert some.usage() == {"encode": Usage(declared=60, used=20, peak=50)}


def test_a_plan_that_does_not_fit_names_everybodys_bytes() -> None:
    with pytest.raises(ValueError, match=r"101 of 100 bytes are declared: encode 60, think 41"):
        ByteBudget(100, {"encode": 60, "think": 41})


@pytest.mark.parametrize(("total", "declared"), [(-1, {}), (100, {"encode": -1, "think": 50})])
def test_bytes_are_not_negative(total: int, declared: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        ByteBudget(total, declared)


@pytest.mark.parametrize("nbytes", [-1, 11])
def test_nobody_gives_back_what_it_has_not_got(nbytes: int) -> None:
    some = ByteBudget(100, {"encode": 60, "think": 40})
    some.take("think", 40)
    some.take("encode", 10)
    with pytest.raises(AssertionError):
        some.give_back("encode", nbytes)


HOLDERS = {"encode": 50, "think": 30, "speak": 15}


class Anything(RuleBasedStateMachine):
    """Holders take and give back in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.some = ByteBudget(100, HOLDERS)
        self.held: dict[str, list[int]] = {holder: [] for holder in HOLDERS}
        self.most = dict.fromkeys(HOLDERS, 0)

    @rule(holder=st.sampled_from(sorted(HOLDERS)), nbytes=st.integers(0, 60))
    def take(self, holder: str, nbytes: int) -> None:
        if sum(self.held[holder]) + nbytes <= HOLDERS[holder]:
            self.some.take(holder, nbytes)
            self.held[holder].append(nbytes)
            self.most[holder] = max(self.most[holder], sum(self.held[holder]))
        else:
            assert refused(self.some, holder, nbytes).never_fits == (nbytes > HOLDERS[holder])

    @rule(holder=st.sampled_from(sorted(HOLDERS)), data=st.data())
    def give_back(self, holder: str, data: st.DataObject) -> None:
        if self.held[holder]:
            nbytes = data.draw(st.sampled_from(self.held[holder]))
            self.held[holder].remove(nbytes)
            self.some.give_back(holder, nbytes)

    @invariant()
    def everybody_has_what_it_took(self) -> None:
        self.some.check_integrity()
        for holder, usage in self.some.usage().items():
            used = sum(self.held[holder])
            assert usage == Usage(HOLDERS[holder], used, self.most[holder])
            assert self.some.free(holder) == HOLDERS[holder] - used


TestAnything = Anything.TestCase
