"""From a recording to a result, in one pass, and what results are held against. Nothing is printed here."""
