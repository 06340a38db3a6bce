"""Our services as modules of flux-core: files for `flux-trio-module-loader`."""
