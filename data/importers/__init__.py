"""Every trajectory format that can be imported, one file each; `registry.FORMATS` lists them in the order detection asks."""
