"""The live page: what it shows (book), how it is sent (hub), how it is served (site), the page itself (document).

It knows no nodes: node/page/ and runner/page/ fill the book.
"""
