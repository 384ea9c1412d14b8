"""The test bench: a PostgreSQL and a fork server for each process of tests, and fleets that start in half a second.

For a test on a fleet that all tests of its shape share, ask for `fleet` (tests/conftest.py):

    async def test_it_arrives(fleet: Fleet) -> None:
        answer = await fleet.notify("health", channel="telegram", message="unique words")
        entry = await fleet.outside.arrived("unique words", OWNER)

  - Such a test runs in the session's loop by itself. It runs in one process, and in `make verify` in one for each
    daemon; with `@pytest.mark.every_mode` there in the third shape too; with `@pytest.mark.modes("each", "two")` only
    in those that fit. `pytest --modes=one,each,two` runs every test in all named shapes. Use words and contacts
    (`fleet.contact(...)`) of your own, and leave the fleet whole.

For a fleet of your own (kills, faults, planted bugs), ask for `bench` and mark the test
`@pytest.mark.asyncio(loop_scope="session")` or leave it in a loop of its own:

    house = await bench.house(code=folder, BUTLERS_SWEEP_SECONDS="0.2")   # 0.15 s: database, home, ports, fleet folder
    fleet = await Fleet.start(house, "each")                              # "one" 0.7 s, "each", "two" some seconds
    await fleet.kill("messenger")                # SIGKILL, or another signal; [exit codes]; `up` in one process
    await fleet.restart("messenger")
    await fleet.stop()                           # SIGTERM; asserts exit codes 0 and no traceback in any log
    await fleet.abandon()                        # ends it at once and asserts nothing

  - `code` is a folder with copies of our packages (`copy_of_code`), searched before the checkout: plant bugs there.
  - `house.spawn(argv, log)` starts any `butlers ARGV`, `await house.butlers(*argv)` runs one to its end.

fleet: url urls token client(name, era) call notify hop(caller, target, tool, args) sql value contact status logs
fleet.outside (the sandbox): journal having until arrived card press press_data say fault clear_faults

What must happen is waited for with `until` and `eventually` of tests/rig/waiting.py, or for its LONGEST.

The fork server has imported the packages of others and the checkout's own; one for other code imports that in each
child. It ends its children, stops PostgreSQL and removes its folder also when the test run is killed. `python -m
tests.run` prepares a migrated database once, and each process copies it (cluster.py). Measured on two busy cores: a
PostgreSQL in 0.2 s instead of 2.5, one daemon ready in 0.45 s instead of 3.6 s, `butlers up` in 0.6 s, a cloned and
migrated database with its home in 0.15 s.
"""
