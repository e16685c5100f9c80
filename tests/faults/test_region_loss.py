"""A region of a stretched cluster is killed under load; `make regions` has more trials."""

from pathlib import Path

import pytest

from tests.regions import stretched
from tests.regions.lab import topology


@pytest.mark.timeout(600)  # eleven processes start, and a session of ZooKeeper must expire
def test_a_region_of_a_stretched_cluster_is_lost(tmp_path: Path) -> None:
    with topology("sync-small", tmp_path) as lab:
        stretched.lose_a_region(lab)
