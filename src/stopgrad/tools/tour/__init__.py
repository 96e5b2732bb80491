"""The tour: all workloads run, checked, and shown on one page."""
