"""What is told of speculation: reports, logs and comparisons."""
