"""A document as one offline HTML page, and its main parts for notebooks."""
