"""What all reports share: their parts, and how these become text, HTML and JSON.

The content of reports is made elsewhere.
"""
