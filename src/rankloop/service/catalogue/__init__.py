"""Catalogues as processes that rank hold them."""
