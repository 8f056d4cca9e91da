"""Languages, one ``<code>.po`` each, and what gathers the sentences to translate."""
