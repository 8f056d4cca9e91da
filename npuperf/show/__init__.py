"""A document as screen, tables, Markdown, CSV, JSON, page, notebook or trace. Every number comes out as it went in."""
