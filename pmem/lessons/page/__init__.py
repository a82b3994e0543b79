"""The local page over the lessons store (extra `lessons`: starlette, uvicorn, jinja2). Loopback only, with a token."""
