"""The tour: runs and checks all workloads, and shows them on one page."""
