"""Tables of published figures in their older format -> tables of runs; what is known of each source is here alone."""
