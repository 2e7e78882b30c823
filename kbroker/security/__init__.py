"""Who a client is, what it may do, and how much of it: rules without sockets, clocks or threads."""
