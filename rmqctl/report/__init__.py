"""The report: what the verbs say of some stores, as one document, and that as a page that needs nothing else.

    from rmqctl import open_all, report

    document = report.collect(open_all(["/data/rocketmq/store"]))
    Path("report.html").write_text(report.page(document))

Nothing here finds or computes a fact that a verb does not have.
"""

from rmqctl.report.collecting import Wanted, collect
from rmqctl.report.document import read_document
from rmqctl.report.page import page

__all__ = ["Wanted", "collect", "page", "read_document"]
