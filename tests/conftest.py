"""Fixtures that several test files share."""

from front_helpers import fake_rules as fake_rules
