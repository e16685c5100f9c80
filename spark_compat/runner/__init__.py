"""Runs the jobs: servers, one Spark session, the same records for both sides, comparison and report."""
