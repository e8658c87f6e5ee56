"""Tests of headrace.cluster."""
