"""Distributions beside headrace; their tests are modules of the checkout: `packages.holoscan.tests`."""
