"""The results of the three verbs: plain data, from which every format and schema is derived."""
