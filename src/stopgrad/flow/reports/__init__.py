"""What all reports share: the parts that they are made of, and how these become text, HTML and JSON.

What a report says stands elsewhere.
"""
