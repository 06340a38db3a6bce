"""What the tests of fixtures and markers have."""

from tests.support.user_tests import run  # noqa: F401 - a fixture
