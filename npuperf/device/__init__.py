"""One device studied: its time split exactly, its host, its operators, its cores, and the replay of it all."""
