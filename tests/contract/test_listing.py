"""One test for each scenario of the contract and no other, named by its heading."""

from tests.contract.listing import bearers, headings, name_of


def test_each_scenario_is_one_test_that_bears_its_heading() -> None:
    assert bearers() == {name_of(heading): heading for heading in headings()}
    assert len(headings()) == len(set(headings())) == 29
