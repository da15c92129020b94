// Streamlit itself closes its side bar only in the window of a phone, and no style sheet can: that it is closed is
// known to its button alone.

const NARROW = 1000; // pixels; as in screen.css

// Streamlit puts each group of pages into an element between the list and its entries, which screen readers then do
// not read as entries of a list.
function nameLists() {
  for (const list of document.querySelectorAll('[data-testid="stSidebarNavItems"]')) {
    list.setAttribute("role", "none");
    for (const entry of list.querySelectorAll(":scope > * > li:first-of-type")) {
      entry.parentElement?.setAttribute("role", "list");
    }
  }
}

// On window: this module may be loaded more than once.
const shared = /** @type {{ headlightSideBar?: boolean, headlightNavigation?: MutationObserver }} */ (globalThis);

export default function sideBar() {
  if (!shared.headlightNavigation) {
    shared.headlightNavigation = new MutationObserver(nameLists);
    shared.headlightNavigation.observe(document.body, { childList: true, subtree: true });
    nameLists();
  }
  if (shared.headlightSideBar || window.innerWidth > NARROW) return;
  const open = document.querySelector('[data-testid="stSidebar"][data-collapsed="false"]');
  /** @type {HTMLElement | null | undefined} */
  const button = open?.querySelector('[data-testid="stSidebarCollapseButton"] button');
  if (!button) return;
  shared.headlightSideBar = true;
  button.click();
}
