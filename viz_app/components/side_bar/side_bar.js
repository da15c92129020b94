// Streamlit itself closes its side bar only in the window of a phone, and no style sheet can: that it is closed is
// known to its button alone.

const NARROW = 1000; // pixels; as in screen.css
const NAME = "headlightSideBar"; // on window: this module may be loaded more than once

export default function () {
  if (window[NAME] || window.innerWidth > NARROW) return;
  const open = document.querySelector('[data-testid="stSidebar"][data-collapsed="false"]');
  const button = open?.querySelector('[data-testid="stSidebarCollapseButton"] button');
  if (!button) return;
  window[NAME] = true;
  button.click();
}
