"""What measures: workloads, arms and bars, and the pages and tables made of them."""
