"""Quality of forecasts, by the labels that came.

May import events, sketch and maps.
"""
