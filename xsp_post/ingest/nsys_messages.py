"""Captures in: what may be wrong or odd with an Nsight Systems export (docs/messages.md)."""

from __future__ import annotations
