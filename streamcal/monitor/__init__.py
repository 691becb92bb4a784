"""Monitoring of a run: its status record, remarks, metrics, alarms and closing table.

May import run and every room below it.
"""
