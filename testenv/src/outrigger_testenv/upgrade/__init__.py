"""Upgrades from the version before the redesign for many engines, and back."""
