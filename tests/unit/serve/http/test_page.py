"""The page at / in Debian's headless Chromium, by keyboard alone. Only `make nightly` installs a browser."""

import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.files import write_files
from tests.unit.serve.http.server_process import serving

pytestmark = pytest.mark.nightly
PARTY = "\N{PARTY POPPER}"


@pytest.fixture(scope="module")
def url(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's model has windows of at most 128 tokens."""
    base = tmp_path_factory.mktemp("served")
    (base / "model").symlink_to(tiny_model)
    with serving(base) as server:
        server.wait_for("/ping", 200)
        yield f"{server.client.base_url}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1100,1100", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: WebDriver, url: str) -> WebDriver:
    browser.get(url)
    wait(browser, lambda: text_of(browser, "state") == "ready, in fp32")
    return browser


def wait(browser: WebDriver, condition: "object") -> None:
    WebDriverWait(browser, 20).until(lambda _: condition())  # type: ignore[operator]


def text_of(browser: WebDriver, name: str) -> str:
    return browser.find_element(By.ID, name).text


def tab_to(browser: WebDriver, name: str) -> None:
    """Press the tab key until the element with that ID has the focus."""
    for _ in range(12):
        if browser.switch_to.active_element.get_attribute("id") == name:
            return
        browser.switch_to.active_element.send_keys(Keys.TAB)
    pytest.fail(f"{name} is not reached by the tab key")


def test_keyboard_alone_asks_a_question_and_answer_is_marked(page: WebDriver) -> None:
    for name, text in (("question", "who?"), ("context", f"a {PARTY} b c d {PARTY} e f g. h i j k l m n.")):
        tab_to(page, name)
        page.switch_to.active_element.send_keys(Keys.CONTROL + "a", Keys.DELETE)
        # The driver can't type characters above U+FFFF.
        page.execute_script("document.activeElement.value = arguments[0]", text)
    tab_to(page, "ask")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait(page, lambda: page.find_element(By.ID, "found").is_displayed())
    answer = text_of(page, "answer")
    shown = page.find_element(By.ID, "text")
    assert shown.text == f"a {PARTY} b c d {PARTY} e f g. h i j k l m n."
    marks = [mark.text for mark in shown.find_elements(By.TAG_NAME, "mark")]
    assert marks == ([answer] if answer != "none in the text" else [])
    assert text_of(page, "score").endswith(" %")
    assert 1 <= len(page.find_elements(By.CSS_SELECTOR, "#others li")) <= 3


def test_an_example_fills_the_form_and_enter_asks(page: WebDriver) -> None:
    tab_to(page, "example")
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    tab_to(page, "question")
    assert page.switch_to.active_element.get_attribute("value") == "What does Philipp do for a living?"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait(page, lambda: page.find_element(By.ID, "found").is_displayed())
    assert text_of(page, "text").startswith("My Name is Philipp")


def test_error_is_shown_as_an_alert(page: WebDriver) -> None:
    page.execute_script("document.getElementById('question').value = 'x '.repeat(300)")
    tab_to(page, "question")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    error = page.find_element(By.ID, "error")
    wait(page, error.is_displayed)
    assert "`inputs` can't be used" in error.text
    assert error.get_attribute("role") == "alert"
    assert not page.find_element(By.ID, "found").is_displayed()


def test_page_loads_only_from_the_server_without_console_errors(page: WebDriver, url: str) -> None:
    """A violation of the Content-Security-Policy would appear in the browser's console."""
    wait(page, lambda: text_of(page, "state") != "…")
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert loaded
    assert all(name.startswith(url) for name in loaded)
    severe = [
        line for line in page.get_log("browser") if line["level"] == "SEVERE" and "favicon" not in line["message"]
    ]
    assert [line for line in severe if "400" not in line["message"]] == []


def test_every_field_has_a_label(page: WebDriver) -> None:
    for name in ("example", "question", "context"):
        assert page.find_element(By.CSS_SELECTOR, f"label[for={name}]").text
    assert page.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"


def test_live_regions_are_answer_state_progress_and_error(page: WebDriver) -> None:
    tab_to(page, "question")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait(page, lambda: text_of(page, "score"))
    live = page.find_elements(By.CSS_SELECTOR, "[aria-live], [role=status], [role=alert]")
    assert {each.get_attribute("id") for each in live} == {"state", "progress", "said", "error"}
    assert text_of(page, "said") == f"Answer: {text_of(page, 'answer')} {text_of(page, 'score')}"
    assert not page.find_elements(By.CSS_SELECTOR, ":is([aria-live], [role=status]) [role=alert]")
    assert not page.find_elements(By.CSS_SELECTOR, ":is([aria-live], [role=status], [role=alert]) #text")


def test_second_press_sends_no_request_and_focus_stays(page: WebDriver) -> None:
    """While a request runs, the poll of /ping does not enable the button, and a second press sends nothing."""
    page.execute_script("""
        window.requests = 0;
        window.polls = 0;
        const real = window.fetch;
        window.fetch = (path, ...rest) => {
          if (path === "ping") return real(path, ...rest).finally(() => { window.polls += 1; });
          window.requests += 1;
          return new Promise((resolve) => { window.release = () => resolve(real(path, ...rest)); });
        };
    """)
    tab_to(page, "ask")
    button = page.switch_to.active_element
    button.send_keys(Keys.ENTER)
    wait(page, lambda: page.execute_script("return window.polls >= 2"))
    assert button.get_attribute("aria-disabled") == "true"
    assert text_of(page, "progress") == "The model is asked…"
    button.send_keys(Keys.ENTER)
    assert page.execute_script("return window.requests") == 1
    page.execute_script("window.release()")
    wait(page, lambda: button.get_attribute("aria-disabled") == "false")
    assert text_of(page, "progress") == ""
    assert page.switch_to.active_element == button


def test_example_can_be_selected_again_after_an_edit(page: WebDriver) -> None:
    example = Select(page.find_element(By.ID, "example"))
    example.select_by_index(1)
    question = page.find_element(By.ID, "question")
    question.send_keys(" more")
    assert example.first_selected_option.text == "your own words"
    example.select_by_index(1)
    assert question.get_attribute("value") == "What does Philipp do for a living?"


def test_page_of_a_handler_has_no_form(browser: WebDriver, tmp_path: Path) -> None:
    handler = "def model_fn(folder):\n    return lambda data: data\n"
    with serving(write_files(tmp_path, {"model/code/inference.py": handler})) as server:
        server.wait_for("/ping", 200)
        browser.get(f"{server.client.base_url}/")
        wait(browser, lambda: text_of(browser, "progress"))
        assert text_of(browser, "progress").startswith("This model has code of its own")
        assert "/invocations" in text_of(browser, "progress")
        tab_to(browser, "ask")
        button = browser.switch_to.active_element
        assert button.get_attribute("aria-disabled") == "true"
        assert button.get_attribute("aria-describedby") == "progress"
        button.send_keys(Keys.ENTER)
        assert not browser.find_element(By.ID, "error").is_displayed()
        assert text_of(browser, "state") == "ready, with code of its own"
        browser.get("about:blank")


def test_page_without_javascript_shows_a_note(url: str) -> None:
    with urllib.request.urlopen(url, timeout=5) as response:
        assert "<noscript><p>This page asks the model with JavaScript" in response.read().decode()
