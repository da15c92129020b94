// The stored runs of the site, of which those that were read are kept.

/** @import { SiteDescription, StoredRuns } from "./types.d.ts" */

/**
 * @param {SiteDescription} _site
 * @param {URL} _root address of the folder of the site
 * @returns {StoredRuns}
 */
export function createStoredRuns(_site, _root) {
  return {
    has: () => false,
    peek: () => undefined,
    read: () => Promise.reject(new Error("There is no stored run.")),
  };
}
