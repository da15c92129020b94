// The parts of the site that are downloaded when a visit needs them.

import { EngineError } from "../engine/errors.js";

/** A part of the site was not received. */
export class SiteDownloadError extends EngineError {}

/**
 * Return what is downloaded.
 * @template Content
 * @param {Promise<Content>} download
 * @returns {Promise<Content>}
 * @throws {SiteDownloadError}
 */
export async function received(download) {
  try {
    return await download;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new SiteDownloadError(`A part of the site could not be downloaded: reload the page. (${reason})`);
  }
}

/**
 * Return the response for a file.
 * @param {URL} url
 * @throws {SiteDownloadError}
 */
export async function receivedFile(url) {
  const response = await received(fetch(url));
  if (response.ok) return response;
  throw new SiteDownloadError(`A part of the site could not be downloaded: reload the page. (${response.status})`);
}
