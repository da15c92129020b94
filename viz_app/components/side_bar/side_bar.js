// Streamlit itself closes its side bar only in the window of a phone, and no style sheet can: that it is closed is
// known to its button alone.

const NARROW = 1000; // pixels; as in screen.css

// On window: this module may be loaded more than once.
const shared = /** @type {{ headlightSideBar?: boolean }} */ (globalThis);

export default function sideBar() {
  if (shared.headlightSideBar || window.innerWidth > NARROW) return;
  const open = document.querySelector('[data-testid="stSidebar"][data-collapsed="false"]');
  /** @type {HTMLElement | null | undefined} */
  const button = open?.querySelector('[data-testid="stSidebarCollapseButton"] button');
  if (!button) return;
  shared.headlightSideBar = true;
  button.click();
}
