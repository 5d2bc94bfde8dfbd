"""What acts on decisions: tasks, threads, and the runs in progress."""
