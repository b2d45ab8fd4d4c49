"""The load test: profiles as data, generator processes, merged events, a report and its bounds."""
