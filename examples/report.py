#!/usr/bin/env python3
# Reads sales, prints a table, draws a chart, writes files. Run it with
#   hutch run --input examples/sales.csv --out out examples/report.py inputs/sales.csv
# The packages python3-matplotlib and python3-numpy of the host are used.
import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def read_sales(path):
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row["date"][:7], row["region"], row["product"], int(row["units"]), float(row["unit_price"])


def add_up(sales):
    """revenue[month][region], and per product: units and revenue."""
    by_month = defaultdict(lambda: defaultdict(float))
    by_product = defaultdict(lambda: [0, 0.0])
    for month, region, product, units, price in sales:
        by_month[month][region] += units * price
        by_product[product][0] += units
        by_product[product][1] += units * price
    return by_month, by_product


def print_table(by_product):
    total = sum(revenue for _, revenue in by_product.values())
    print(f"{'product':<12}{'units':>8}{'revenue':>12}{'share':>8}")
    for product, (units, revenue) in sorted(by_product.items(), key=lambda item: -item[1][1]):
        print(f"{product:<12}{units:>8,}{revenue:>12,.2f}{revenue / total:>8.1%}")
    print(f"{'total':<12}{sum(units for units, _ in by_product.values()):>8,}{total:>12,.2f}")
    return total


def draw(by_month, path):
    months = sorted(by_month)
    regions = sorted({region for month in by_month.values() for region in month})
    bottom = np.zeros(len(months))
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for region in regions:
        heights = np.array([by_month[month][region] for month in months])
        axes.bar(months, heights, bottom=bottom, label=region)
        bottom += heights
    trend = np.polyval(np.polyfit(np.arange(len(months)), bottom, 2), np.arange(len(months)))
    axes.plot(months, trend, color="black", linestyle="--", label="trend")
    axes.set_title("Revenue by month and region")
    axes.tick_params(axis="x", rotation=45)
    axes.legend(ncol=5, fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return months[int(bottom.argmax())], float(bottom.max())


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else "inputs/sales.csv"
    by_month, by_product = add_up(read_sales(source))
    total = print_table(by_product)

    folder = Path("report")
    folder.mkdir(exist_ok=True)
    best_month, best = draw(by_month, folder / "revenue.png")
    with open(folder / "summary.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["product", "units", "revenue"])
        for product, (units, revenue) in sorted(by_product.items()):
            writer.writerow([product, units, f"{revenue:.2f}"])
    summary = {"total_revenue": round(total, 2), "best_month": best_month, "best_month_revenue": round(best, 2)}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(f"\nBest month: {best_month} with {best:,.2f}. Chart and tables are in {folder}/.")


if __name__ == "__main__":
    main()
